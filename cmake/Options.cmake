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
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
