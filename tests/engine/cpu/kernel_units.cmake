# Kernel units must not define functions that the linker may share with other units (weak symbols:
# inline functions and templates of shared headers): their copy could run on a machine without their
# instructions. NM: the tool; OBJECTS: all objects of the engine, comma-separated; UNITS: names of
# kernel units, comma-separated.
string(REPLACE "," ";" objects "${OBJECTS}")
string(REPLACE "," ";" units "${UNITS}")
set(found 0)
foreach(unit ${units})
  get_filename_component(name ${unit} NAME)
  foreach(object ${objects})
    if(object MATCHES "/${name}\\.o(bj)?$")
      math(EXPR found "${found} + 1")
      execute_process(COMMAND ${NM} -C ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
      if(symbols MATCHES "\n[0-9a-f]* +[WVu] ([^\n]*)")
        message(FATAL_ERROR "${unit} shares ${CMAKE_MATCH_1}")
      endif()
    endif()
  endforeach()
endforeach()
if(found LESS 10)
  message(FATAL_ERROR "only ${found} kernel units found among ${OBJECTS}")
endif()
message(STATUS "${found} kernel units share nothing")
