# `cmake --install` and `cpack`: the program, its documents, configurations, examples and the completion for bash.
include(GNUInstallDirs)
set(FILIGREE_COMPLETION ${PROJECT_BINARY_DIR}/completion/filigree)
add_custom_command(OUTPUT ${FILIGREE_COMPLETION}
                   COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/completion
                   COMMAND filigree completion bash > ${FILIGREE_COMPLETION}
                   DEPENDS filigree VERBATIM)
add_custom_target(filigree_completion ALL DEPENDS ${FILIGREE_COMPLETION})

install(TARGETS filigree RUNTIME)
install(FILES ${FILIGREE_COMPLETION} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/filigree)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN results EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} USE_SOURCE_PERMISSIONS)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# A package is made of what is built already: cmake --build --preset cpu --target filigree filigree_completion, then
# cpack --config build/CPackConfig.cmake.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME filigree)
set(CPACK_PACKAGE_VENDOR "the authors of filigree")
set(CPACK_PACKAGE_CONTACT "the authors of filigree <filigree@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sparse pre-training of language models")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Trains GPT-2, OPT and LLaMA models whose weights are sparse from the first step, on the CPU or on an NVIDIA GPU.")
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
if(DPKG_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # Depends: the packages of the libraries that the program is linked with
endif()
include(CPack)
