// What the error of an action says, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "mlxlm/error.h"

namespace mlxlm {

/// The message of the Error that the action throws, which must be of this kind; "no failure" where it throws none.
inline std::string message_of(const std::function<void()>& action, ErrorKind kind = ErrorKind::invalid_value) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no failure";
}

}  // namespace mlxlm
