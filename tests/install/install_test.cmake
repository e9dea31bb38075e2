# Installs the build into an empty folder, checks what lies there, and builds and runs a consumer.
cmake_minimum_required(VERSION 3.25)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${what} failed:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
set(prefix "${WORK}/prefix")
run("cmake --install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")

foreach(data IN ITEMS topologies models)
  file(GLOB_RECURSE ours RELATIVE "${SOURCE}" "${SOURCE}/${data}/*.json")
  foreach(file IN LISTS ours)
    if(NOT EXISTS "${prefix}/share/sp-plan/${file}")
      message(FATAL_ERROR "${file} was not installed")
    endif()
  endforeach()
endforeach()

set(flags "")
if(SANITIZE)
  set(flags "-DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE}")
endif()
run("configuring the consumer" "${CMAKE_COMMAND}" -G Ninja -S "${CONSUMER}" -B "${WORK}/consumer"
  "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}" ${flags})
run("building the consumer" "${CMAKE_COMMAND}" --build "${WORK}/consumer")
run("the consumer" "${WORK}/consumer/consumer")
string(STRIP "${output}" output)
if(NOT output STREQUAL "sp-plan ${VERSION}: 80000000000 bytes")
  message(FATAL_ERROR "the consumer said: ${output}")
endif()

if(EXISTS "${prefix}/bin/sp-plan")
  run("the installed sp-plan" "${prefix}/bin/sp-plan" --version)
endif()

# The Python package: where the interpreter looks, below prefixes of the system as below any other.
if(PYTHON)
  file(GLOB module "${prefix}/lib/python3*/*-packages/sp_plan")
  cmake_path(GET module PARENT_PATH site)
  run("the installed sp_plan" "${CMAKE_COMMAND}" -E env "PYTHONPATH=${site}" "${PYTHON}" -B -c
    "import sp_plan
print(sp_plan.__file__, sp_plan.__version__, len(sp_plan.list_models()['models']) > 0)")
  if(NOT output STREQUAL "${module}/__init__.py ${VERSION} True\n")
    message(FATAL_ERROR "the installed sp_plan said: ${output}")
  endif()
  run("python3" "${PYTHON}" -c "import site
print(*site.getsitepackages())")
  string(REGEX MATCHALL "[^ \n]+" folders "${output}")
  foreach(system IN ITEMS /usr /usr/local)
    run("cmake --install for ${system}" "${CMAKE_COMMAND}" -E env "DESTDIR=${WORK}/staged${system}"
      "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${system}" --component program)
    set(found "")
    foreach(folder IN LISTS folders)
      if(EXISTS "${WORK}/staged${system}${folder}/sp_plan/__init__.pyi")
        list(APPEND found "${folder}")
      endif()
    endforeach()
    if(found STREQUAL "" AND "${folders}" MATCHES "(^|;)${system}/lib/")
      message(FATAL_ERROR "below ${system} the package lies in none of ${folders}")
    endif()
  endforeach()
endif()
