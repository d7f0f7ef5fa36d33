# Read by cpack for each kind of package: the tarball has what needs no place in the system, the .deb has all.
if(CPACK_GENERATOR STREQUAL "TGZ")
  list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
  set(CPACK_INSTALL_CMAKE_PROJECTS "${build};baton;program;/")
else()
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
endif()
