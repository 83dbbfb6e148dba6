#include "cli/app.h"

int main(int argc, char** argv) { return mlxlm::cli::run_program(argc, argv); }
