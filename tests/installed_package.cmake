# Installs into a fresh folder, builds examples/cpp against it with nothing but find_package(mlxlm), and runs every example
# and the installed command on a tiny model. Variables: BUILD_DIR, SOURCE_DIR, PYTHON, CXX, GENERATOR.
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

# A caller's warnings are on, so the headers must not cause any.
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/cpp -B ${work}/example -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${CXX}
    -D CMAKE_PREFIX_PATH=${prefix} -D "CMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
run(${CMAKE_COMMAND} --build ${work}/example)

# Runs an example; its output must match the expression. ARGN: its arguments after the model.
set(tried "")
function(try name expected)
  run(${work}/example/${name} ${work}/model ${ARGN})
  if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "examples/cpp/${name}: expected output that matches '${expected}', got\n${output}")
  endif()
  list(APPEND tried ${name})
  set(tried "${tried}" PARENT_SCOPE)
endfunction()

set(same ": the same\n[^\n]*")
try(answer "..")
try(chat ".." "Is the package whole?")
try(sampling "^token [0-9]+, log-probability -.*; most likely: .*\nown sampler: .")
try(processors "^free: .*\nconstrained: (yes|no), it is 1?[0-9] degrees\n$")
try(caches "^([0-9]+) tokens in [0-9]+ bytes, saved.* What was.* \\[857 tokens were.* Who wrote.* \\[857 tokens were"
    ${work}/cache.safetensors)
# With itself as the draft model every guess is right.
try(speculation "^plain: 0 of 0 .*\nprompt lookup: [0-9]+ of [0-9]+ .*\ndraft model: ([1-9][0-9]*) of [0-9]+ guesses right")
try(batching "2 \\((stop|length)\\): .*[1-9][0-9]* tokens, [0-9.]+ tokens/s\n$")
try(reproducibility "^[^\n]*${same}${same}${same}${same}${same}$")

file(GLOB examples RELATIVE ${SOURCE_DIR}/examples/cpp ${SOURCE_DIR}/examples/cpp/*.cc)
list(TRANSFORM examples REPLACE "[.]cc$" "")
list(SORT tried)
expect_same("the examples there are, and those tried here" "${examples}" "${tried}")

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
