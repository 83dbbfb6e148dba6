# Installs into a fresh folder, builds examples/cpp against it with nothing but find_package(mlxlm), and runs the example and
# the installed command on a tiny model. Variables: BUILD_DIR, SOURCE_DIR, PYTHON, CXX, GENERATOR.
cmake_minimum_required(VERSION 3.25)

set(work ${BUILD_DIR}/installed_package)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nexpected exit status 0, got ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_same what left right)
  if(NOT left STREQUAL right)
    message(FATAL_ERROR "${what}: expected the same twice, got\n${left}\nand\n${right}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run(${PYTHON} ${SOURCE_DIR}/tests/tiny_model.py ${work}/model)

run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/cpp -B ${work}/example -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${CXX}
    -D CMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${work}/example)
run(${work}/example/chat ${work}/model "Is the package whole?")
string(LENGTH "${output}" length)
if(length LESS 2)
  message(FATAL_ERROR "examples/cpp/chat: expected text, got '${output}'")
endif()

set(generate ${prefix}/bin/mlxlm generate --model ${work}/model --prompt hello --max-tokens 8 --seed 1 --verbose false)
run(${generate})
set(first "${output}")
run(${generate})
expect_same("mlxlm generate with one seed" "${first}" "${output}")

# A program that is given a wrong folder learns which.
execute_process(COMMAND ${work}/example/chat ${work}/missing RESULT_VARIABLE status ERROR_VARIABLE output)
if(status EQUAL 0 OR NOT output MATCHES "missing")
  message(FATAL_ERROR "chat with a missing folder: expected an error naming it, got status ${status}: ${output}")
endif()
