# Compiler options that every room shares.
# -ffp-contract=off: the accumulation rule (docs/numbers.md) forbids the compiler to fuse multiply and add.
add_library(moetier_options INTERFACE)
target_compile_options(moetier_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                                 -ffp-contract=off -fno-fast-math)
target_compile_definitions(moetier_options INTERFACE MOETIER_VERSION="${PROJECT_VERSION}" $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)
target_include_directories(moetier_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
if(MOETIER_SANITIZE)
  target_compile_options(moetier_options INTERFACE -fsanitize=${MOETIER_SANITIZE} -fno-omit-frame-pointer
                                                   -fno-sanitize-recover=all)
  target_link_options(moetier_options INTERFACE -fsanitize=${MOETIER_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  # Without these it would not cache what uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(moetier_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()

# Headers that nearly every unit of the larger rooms reads: reading them anew takes as long as compiling the rest. Units still
# include what they use.
set(MOETIER_COMMON_HEADERS <algorithm> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector>
                           <fmt/format.h> <nlohmann/json.hpp>)
