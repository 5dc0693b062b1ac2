# Debian packages: `cd build && cpack` writes diapason, libdiapason-runtime1 and libdiapason-dev, one for each component.
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL program runtime development)
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
include(CPack)
