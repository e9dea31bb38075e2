# cmake -DFOLDER=… -DSOURCE=… -DCLANG=… -P build.cmake: the targets with clang++ and libFuzzer.
cmake_minimum_required(VERSION 3.25)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${what} failed:\n${output}")
  endif()
endfunction()

run("configuring" "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE}" -B "${FOLDER}" "-DCMAKE_CXX_COMPILER=${CLANG}"
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-g1 "-DCMAKE_CXX_FLAGS=-O1 -fsanitize=fuzzer-no-link -Wno-unknown-warning-option -w"
  "-DSPP_SANITIZE=address,integer-divide-by-zero,signed-integer-overflow,shift,bounds,float-cast-overflow" -DSPP_FUZZ_BUILD=ON)
run("building" "${CMAKE_COMMAND}" --build "${FOLDER}" --target fuzz)
