# Debian packages: `cd build && cpack` writes one for each component: diapason, the libraries libdiapason-runtime1 and libdiapason0.1, what
# programs are built with, libdiapason-dev and libdiapason-tuner-dev, and python3-diapason where the Python package is built.
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL program runtime development tuner tuner_development)
if(TARGET diapason_python3)
  list(APPEND CPACK_COMPONENTS_ALL python3)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_NAME diapason)
set(CPACK_PACKAGE_CONTACT "Diapason maintainers <maintainers@diapason.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Where the libraries of the other packages are while this one's dependencies are looked up; those on them are written below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/runtime)

# Libraries of drivers and compilers are opened at run time.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME diapason)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "auto-tuning compiler for neural networks
 Tunes the kernels of a network for a device by search and measurement, and
 builds packages that run.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "gcc | c-compiler, bubblewrap")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libdiapason-runtime1)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "library that runs packages of Diapason
 Loads packages and runs them on cpu, opencl and cuda, without the tuner.")
# So that programs that are linked with it find their dependency, and the linker's cache is renewed.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libdiapason-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libdiapason-runtime1 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "headers of the library that runs packages of Diapason
 With a CMake package and a pkg-config file.")

set(tuner_abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_TUNER_PACKAGE_NAME libdiapason${tuner_abi})
set(CPACK_DEBIAN_TUNER_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_TUNER_PACKAGE_DEPENDS "diapason (= ${PROJECT_VERSION})")  # its processes are that program
set(CPACK_DEBIAN_TUNER_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_TUNER_DESCRIPTION "library that tunes networks and builds packages of them
 What the program diapason does, for other programs.")
set(CPACK_DEBIAN_TUNER_DEVELOPMENT_PACKAGE_NAME libdiapason-tuner-dev)
set(CPACK_DEBIAN_TUNER_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_TUNER_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_TUNER_DEVELOPMENT_PACKAGE_DEPENDS
  "libdiapason${tuner_abi} (= ${PROJECT_VERSION}), libdiapason-dev (= ${PROJECT_VERSION}), libabsl-dev")
set(CPACK_COMPONENT_TUNER_DEVELOPMENT_DESCRIPTION "headers of the library that tunes networks
 With a CMake package and a pkg-config file.")

set(CPACK_DEBIAN_PYTHON3_PACKAGE_NAME python3-diapason)
set(CPACK_DEBIAN_PYTHON3_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON3_PACKAGE_DEPENDS
  "${python3_of_package}, python3-numpy (>= 1:1.23), diapason (= ${PROJECT_VERSION}), libdiapason-runtime1 (>= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_PYTHON3_DESCRIPTION "tunes networks and runs packages of Diapason from Python
 With the backend \"diapason\" of torch.compile.")
include(CPack)
