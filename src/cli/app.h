// The program: finds the command, parses its options, and turns failures into messages and exit codes.
#pragma once

namespace mlxlm::cli {

/// The whole of main().
int run_program(int argc, char** argv);

}  // namespace mlxlm::cli
