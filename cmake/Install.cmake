# Install target, pkg-config and CMake package files, and the Debian package.
include(CMakePackageConfigHelpers)

install(TARGETS moetier RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set_target_properties(libmoetier PROPERTIES EXPORT_NAME moetier)
install(TARGETS libmoetier EXPORT moetierTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT moetierTargets NAMESPACE moetier:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moetier)
configure_package_config_file(cmake/moetierConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/moetierConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moetier)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/moetierConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moetierConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/moetierConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moetier)
# Relative, so that an installed tree may be moved.
file(RELATIVE_PATH MOETIER_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/moetier.pc.in ${CMAKE_CURRENT_BINARY_DIR}/moetier.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moetier.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/include/moetier/moetier.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moetier)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The service is there and not enabled; its settings are an example until someone copies them to /etc/moetier.
install(FILES ${PROJECT_SOURCE_DIR}/packaging/moetier.service DESTINATION lib/systemd/system)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/server.env DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(FILES ${PROJECT_SOURCE_DIR}/docs/server.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

# The man page and the completions are made by the program itself.
set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
foreach(kind man bash zsh fish)
  add_custom_command(
    OUTPUT ${generated}/${kind}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}
    COMMAND moetier docs ${kind} > ${generated}/${kind}
    DEPENDS moetier
    VERBATIM)
  list(APPEND generated_files ${generated}/${kind})
endforeach()
add_custom_target(moetier_generated ALL DEPENDS ${generated_files})
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${CMAKE_BINARY_DIR}\" --target moetier_generated
                              COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)")
install(FILES ${generated}/man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME moetier.1)
install(FILES ${generated}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME moetier)
install(FILES ${generated}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _moetier)
install(FILES ${generated}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME moetier.fish)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME moetier)
set(CPACK_PACKAGE_VENDOR "The Moetier authors")
set(CPACK_PACKAGE_CONTACT "The Moetier authors <moetier@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Runs Mixture-of-Experts models bigger than memory")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
include(CPack)
