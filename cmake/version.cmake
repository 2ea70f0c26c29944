# version.h: what `filigree --version` and a run's environment.json say about this build. Made at build time, because the
# commit changes between configurations; rewritten only when its contents change, so that nothing else is rebuilt.
# Whoever includes it links filigree_version.
set(FILIGREE_BUILT_FOR "")
set(FILIGREE_CUDA_COMPILER "")
if(FILIGREE_CUDA)
  list(JOIN FILIGREE_CUDA_ARCHITECTURES " " FILIGREE_BUILT_FOR)
  set(FILIGREE_CUDA_COMPILER "${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION}")
endif()

find_package(Git QUIET)
add_custom_target(filigree_version_header
  COMMAND ${CMAKE_COMMAND}
    "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DGIT=${GIT_EXECUTABLE}" "-DVERSION=${PROJECT_VERSION}"
    "-DBUILD_TYPE=${CMAKE_BUILD_TYPE}" "-DCXX_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    "-DCUDA_COMPILER=${FILIGREE_CUDA_COMPILER}" "-DCUDA_ARCHITECTURES=${FILIGREE_BUILT_FOR}"
    "-DOUT=${PROJECT_BINARY_DIR}/generated/version.h" -P ${CMAKE_CURRENT_LIST_DIR}/write_version.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/version.h
  COMMENT "Checking version.h" VERBATIM)

add_library(filigree_version INTERFACE)
add_dependencies(filigree_version filigree_version_header)
target_include_directories(filigree_version INTERFACE ${PROJECT_BINARY_DIR}/generated)
