# cmake -DNM=nm -DDRIVER=…/stubs/libcuda.so -DTO=dummy_libcuda.cpp -P dummy_libcuda.cmake
#
# A libcuda without a GPU, so that cuDNN compiles its plans: every function of the driver reports
# success and does nothing, but that
#   what loads a module, library or kernel hands out a pointer, since cuDNN refuses null;
#   cuGetExportTable fails, since NVRTC reads the table that it asks for.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND "${NM}" -D --defined-only "${DRIVER}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[ ]cu[A-Z][A-Za-z0-9_]*" names "${symbols}")
list(TRANSFORM names STRIP)
list(REMOVE_DUPLICATES names)
set(loads "^cu(Library(LoadData|LoadFromFile|GetKernel|GetModule)|KernelGetFunction|Module(Load|LoadData|LoadDataEx|LoadFatBinary|GetFunction))$")
set(text "static long thing[16];\nextern \"C\" {\n")
foreach(name IN LISTS names)
  if(name MATCHES "${loads}")
    string(APPEND text "int ${name}(void** to) { *to = thing; return 0; }\n")
  elseif(name STREQUAL "cuGetExportTable")
    string(APPEND text "int ${name}() { return 500; }\n")  # CUDA_ERROR_NOT_FOUND
  else()
    string(APPEND text "int ${name}() { return 0; }\n")
  endif()
endforeach()
string(APPEND text "}\n")
file(WRITE "${TO}" "${text}")
