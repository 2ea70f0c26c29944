# Run by the build: asks git for the commit and writes OUT. Without git or a checkout the commit is "unknown".
set(COMMIT "")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty=-modified
                  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT COMMIT)
  set(COMMIT "unknown")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${OUT} @ONLY)
