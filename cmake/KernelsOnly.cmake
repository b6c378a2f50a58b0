# The build with MOETIER_KERNELS_ONLY: the rooms that the CPU kernels need, and those rooms' tests. It asks for no library but
# the headers of fmt and nlohmann-json, and makes GoogleTest from Debian's sources, so that a cross compiler is all it takes.
find_package(Threads REQUIRED)
find_path(MOETIER_FMT_HEADERS fmt/core.h REQUIRED)
add_library(moetier_fmt INTERFACE)
target_compile_definitions(moetier_fmt INTERFACE FMT_HEADER_ONLY)
add_library(fmt::fmt ALIAS moetier_fmt)
find_path(MOETIER_JSON_HEADERS nlohmann/json.hpp REQUIRED)
add_library(moetier_json INTERFACE)
add_library(nlohmann_json::nlohmann_json ALIAS moetier_json)

moetier_room(base DEPS fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
moetier_room(quant DEPS base)
moetier_room(compute DEPS quant base)

if(MOETIER_BUILD_TESTS)
  set(MOETIER_GOOGLETEST_SOURCES /usr/src/googletest CACHE PATH "Sources of GoogleTest")
  set(INSTALL_GTEST OFF)
  add_subdirectory(${MOETIER_GOOGLETEST_SOURCES} ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  target_compile_options(gtest PRIVATE -w)
  enable_testing()
  add_subdirectory(tests)
endif()
