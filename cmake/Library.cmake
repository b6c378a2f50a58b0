# libmoetier.so: the C API (include/moetier/moetier.h) and nothing else is visible in it.
add_library(libmoetier SHARED $<TARGET_OBJECTS:moetier_capi>)
set(exports ${CMAKE_CURRENT_SOURCE_DIR}/cmake/libmoetier.map)
target_link_libraries(libmoetier PRIVATE moetier_engine)
target_link_options(libmoetier PRIVATE LINKER:--version-script=${exports})
target_include_directories(libmoetier PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(libmoetier PROPERTIES OUTPUT_NAME moetier VERSION ${PROJECT_VERSION} SOVERSION 0
                                            LINK_DEPENDS ${exports})
