# cmake -D OUTPUT=FILE.cpp -D CHART_JS=FILE -D REPORT_JS=FILE -D REPORT_CSS=FILE -P embed.cmake
# Writes the definitions that assets.h declares, each file as one raw string literal.
set(text "#include \"report/assets.h\"\n\nnamespace filigree::assets {\n")
foreach(name chart_js report_js report_css)
  string(TOUPPER ${name} variable)
  file(READ "${${variable}}" content)
  string(FIND "${content}" ")embedded\"" terminator)
  if(NOT terminator EQUAL -1)
    message(FATAL_ERROR "${${variable}} contains the end mark of a raw string literal")
  endif()
  string(APPEND text "const std::string_view ${name} = R\"embedded(${content})embedded\";\n")
endforeach()
string(APPEND text "}  // namespace filigree::assets\n")
file(WRITE "${OUTPUT}" "${text}")
