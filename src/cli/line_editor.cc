#include "cli/line_editor.h"

#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "cli/output.h"

namespace mlxlm::cli {
namespace {

constexpr int kHistorySize = 1000;

/// libedit writes characters through the C library, which knows UTF-8 only in a locale that has it.
class Utf8Locale {
 public:
  explicit Utf8Locale(locale_t locale) : before_(locale != nullptr ? ::uselocale(locale) : nullptr) {}
  ~Utf8Locale() {
    if (before_ != nullptr) ::uselocale(before_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t before_;
};

locale_t make_utf8_locale() {
  for (const char* name : {"C.UTF-8", ""}) {  // "": the user's own
    if (const locale_t locale = ::newlocale(LC_CTYPE_MASK, name, nullptr); locale != nullptr) return locale;
  }
  return nullptr;
}

void append_utf8(std::string& out, wchar_t character) {
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): wchar_t is no char
  const auto c = static_cast<uint32_t>(character);
  const auto add = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  locale_t locale = nullptr;
  int interrupt_fd = -1;
  bool interrupted = false;
  std::wstring prompt;

  enum class Byte { got, end, interrupted };
  Byte next_byte(unsigned char& byte);
  int next_character(wchar_t& character);
};

LineEditor::State::Byte LineEditor::State::next_byte(unsigned char& byte) {
  while (true) {
    std::array<pollfd, 2> fds = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{interrupt_fd, POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;  // EINTR: the pipe tells why
    if (fds[1].revents != 0) return Byte::interrupted;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count == 1) return Byte::got;
    if (count == 0 || (errno != EINTR && errno != EAGAIN)) return Byte::end;  // the terminal has gone
  }
}

/// As libedit wants it: 1, 0 at the end, −1 to give up.
int LineEditor::State::next_character(wchar_t& character) {
  constexpr wchar_t kReplacement = 0xFFFD;
  unsigned char byte = 0;
  const Byte first = next_byte(byte);
  interrupted = first == Byte::interrupted;
  if (first != Byte::got) return interrupted ? -1 : 0;
  const int more = byte < 0x80 ? 0 : byte >= 0xF0 && byte < 0xF5 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC2 ? 1 : -1;
  if (more <= 0 || byte >= 0xF5) {
    character = more == 0 ? static_cast<wchar_t>(byte) : kReplacement;
    return 1;
  }
  uint32_t value = byte & (0x3Fu >> more);
  for (int i = 0; i < more; ++i) {
    if (next_byte(byte) != Byte::got) return 0;
    if ((byte & 0xC0) != 0x80) {
      character = kReplacement;
      return 1;
    }
    value = value << 6 | (byte & 0x3Fu);
  }
  character = value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ? kReplacement : static_cast<wchar_t>(value);
  return 1;
}

namespace {

// What libedit calls; it gives the editor's state as client data.
LineEditor::State& state_of(EditLine* editor) {
  void* data = nullptr;
  ::el_wget(editor, EL_CLIENTDATA, &data);
  return *static_cast<LineEditor::State*>(data);
}
wchar_t* prompt_of(EditLine* editor) { return state_of(editor).prompt.data(); }
int read_character(EditLine* editor, wchar_t* character) { return state_of(editor).next_character(*character); }

}  // namespace

bool LineEditor::usable() {
  const char* terminal = std::getenv("TERM");
  return terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb" && stdin_is_terminal() &&
         stderr_is_terminal();
}

LineEditor::LineEditor(int interrupt_fd) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.interrupt_fd = interrupt_fd;
  s.locale = make_utf8_locale();
  const Utf8Locale utf8(s.locale);
  s.editor = ::el_init("mlxlm", stdin, stderr, stderr);  // standard output holds the answers alone
  s.history = ::history_winit();
  if (s.editor == nullptr || s.history == nullptr) throw_error(ErrorKind::io, "standard input: cannot edit lines");
  HistEventW event;
  ::history_w(s.history, &event, H_SETSIZE, kHistorySize);
  ::history_w(s.history, &event, H_SETUNIQUE, 1);
  ::el_wset(s.editor, EL_CLIENTDATA, &s);
  ::el_wset(s.editor, EL_GETCFN, &read_character);
  ::el_wset(s.editor, EL_PROMPT, &prompt_of);
  ::el_wset(s.editor, EL_HIST, &::history_w, s.history);
  ::el_wset(s.editor, EL_EDITOR, L"emacs");
  ::el_wset(s.editor, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
  ::el_wset(s.editor, EL_BIND, L"\\e[3~", L"ed-delete-next-char", nullptr);
  ::el_source(s.editor, nullptr);  // the user's own keys
}

LineEditor::~LineEditor() {
  const Utf8Locale utf8(state_->locale);
  if (state_->editor != nullptr) ::el_end(state_->editor);
  if (state_->history != nullptr) ::history_wend(state_->history);
}

LineEditor::Event LineEditor::read(const std::string& prompt, std::string& line) {
  State& s = *state_;
  const Utf8Locale utf8(s.locale);
  s.prompt.assign(prompt.begin(), prompt.end());
  s.interrupted = false;
  int count = 0;
  const wchar_t* text = ::el_wgets(s.editor, &count);
  if (s.interrupted) {
    return Event::interrupted;
  }
  if (text == nullptr || count <= 0) return Event::end;
  line.clear();
  for (int i = 0; i < count && text[i] != L'\n'; ++i) append_utf8(line, text[i]);
  if (HistEventW event; !line.empty()) ::history_w(s.history, &event, H_ENTER, text);
  return Event::line;
}

}  // namespace mlxlm::cli
