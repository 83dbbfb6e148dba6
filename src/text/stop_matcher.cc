#include "text/stop_matcher.h"

#include "base/error.h"

namespace mlxlm::text {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) : nodes_(1) {
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) throw_invalid("stop: expected non-empty strings, got an empty one at index {}", i);
    lengths_.push_back(stops[i].size());
    insert(stops[i], i);
  }
  link();
}

void StopMatcher::insert(const std::string& stop, size_t index) {
  int32_t node = 0;
  for (const char c : stop) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t next = child(node, byte);
    if (next == kNone) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_[node].next.emplace_back(byte, next);
      nodes_.emplace_back().depth = nodes_[node].depth + 1;
    }
    node = next;
  }
  if (nodes_[node].stop == kNone) nodes_[node].stop = static_cast<int32_t>(index);  // the first of equal strings
}

void StopMatcher::link() {
  std::vector<int32_t> queue;  // breadth first: a fallback is shorter, so it is ready before it is needed
  for (const auto& [byte, next] : nodes_[0].next) queue.push_back(next);
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t node = queue[i];
    for (const auto& [byte, next] : nodes_[node].next) {
      nodes_[next].fallback = step(nodes_[node].fallback, byte);
      queue.push_back(next);
    }
    if (nodes_[node].stop == kNone) nodes_[node].stop = nodes_[nodes_[node].fallback].stop;
  }
}

int32_t StopMatcher::child(int32_t node, unsigned char byte) const {
  for (const auto& [edge, next] : nodes_[node].next) {
    if (edge == byte) return next;
  }
  return kNone;
}

int32_t StopMatcher::step(int32_t node, unsigned char byte) const {
  for (;;) {
    const int32_t next = child(node, byte);
    if (next != kNone) return next;
    if (node == 0) return 0;
    node = nodes_[node].fallback;
  }
}

std::string StopMatcher::feed(std::string_view text) {
  if (stopped()) return {};
  for (size_t i = 0; i < text.size(); ++i) {
    state_ = step(state_, static_cast<unsigned char>(text[i]));
    const int32_t stop = nodes_[state_].stop;
    if (stop != kNone) {
      matched_ = static_cast<size_t>(stop);
      std::string all = std::move(held_);
      held_.clear();
      all += text.substr(0, i + 1);
      all.resize(all.size() - lengths_[*matched_]);
      return all;
    }
  }
  std::string all = std::move(held_);
  all += text;
  const size_t safe = all.size() - nodes_[state_].depth;
  held_ = all.substr(safe);
  all.resize(safe);
  return all;
}

std::string StopMatcher::flush() {
  std::string rest = std::move(held_);
  held_.clear();
  state_ = 0;
  return rest;
}

}  // namespace mlxlm::text
