# What an installed Baton has, and the packages: cpack -G DEB|TGZ in the build folder (scripts/package.sh).
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # packages need the program, not every test
set(doc ${CMAKE_INSTALL_DATADIR}/doc/baton)
install(FILES README.md CHANGELOG.md DESTINATION ${doc} COMPONENT program)
install(FILES LICENSE DESTINATION ${doc} RENAME copyright COMPONENT program)
install(DIRECTORY configs/ DESTINATION ${doc}/examples COMPONENT program FILES_MATCHING PATTERN "*.yaml" PATTERN "*.cfg" PATTERN "*.conf"
  PATTERN shapes EXCLUDE)
install(DIRECTORY docs/ DESTINATION ${doc}/docs COMPONENT program FILES_MATCHING PATTERN "*.md"
  PATTERN pictures EXCLUDE PATTERN plots EXCLUDE)
install(FILES ${PROJECT_BINARY_DIR}/sbom.cdx.json DESTINATION ${doc} COMPONENT program OPTIONAL)  # scripts/package.sh

# systemd: units whose sandbox is one file, and the settings of the one that serves at once.
file(READ deploy/systemd/sandbox.conf SANDBOX)
set(BATON_BIN /usr/bin)
set(units baton.service baton-router.service baton-prefill@.service baton-decode@.service)
foreach(unit IN LISTS units)
  configure_file(deploy/systemd/${unit}.in ${PROJECT_BINARY_DIR}/systemd/${unit} @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/systemd/${unit} DESTINATION lib/systemd/system COMPONENT system)
endforeach()
install(FILES deploy/systemd/baton.yaml DESTINATION /etc/baton COMPONENT system)

set(CPACK_PACKAGE_NAME baton)
set(CPACK_PACKAGE_VENDOR "Baton")
set(CPACK_PACKAGE_CONTACT "Baton developers <baton@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM serving with prefill and decode on different workers")
set(CPACK_PACKAGE_DESCRIPTION "Serves language models over the APIs of OpenAI and Anthropic on CPUs with AVX2 or better.
A prompt is computed by prefill workers, tokens by decode workers, and KV travels between them.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 2)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package_parts.cmake)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcurl4, ca-certificates")  # of `baton pull`
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
file(WRITE ${PROJECT_BINARY_DIR}/conffiles "/etc/baton/baton.yaml\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/conffiles
  ${PROJECT_SOURCE_DIR}/deploy/debian/postinst ${PROJECT_SOURCE_DIR}/deploy/debian/prerm
  ${PROJECT_SOURCE_DIR}/deploy/debian/postrm)
include(CPack)
