# Cross-compile with Debian's g++-aarch64-linux-gnu and run the tests under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# fmt is used as headers alone, so the host's package serves every target; its folder is named after the host.
file(GLOB fmt_folders /usr/lib/*-linux-gnu/cmake/fmt)
list(APPEND CMAKE_PREFIX_PATH ${fmt_folders})
