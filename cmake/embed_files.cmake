# Writes a C++ file with what server/ui/ui_files.h declares: the contents of files, plain and
# compressed. Run by the build: cmake -DOUT=FILE.cc -DFILES=A;B -P embed_files.cmake
set(arrays "")
set(rows "")
set(number 0)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(SHA256 ${file} hash)
  string(SUBSTRING ${hash} 0 32 hash)
  file(READ ${file} plain HEX)
  file(ARCHIVE_CREATE OUTPUT ${OUT}.gz PATHS ${file} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
  file(READ ${OUT}.gz gzip HEX)
  file(REMOVE ${OUT}.gz)
  # Bytes 4 to 7 are the time of compressing; without it equal files give equal binaries.
  string(SUBSTRING ${gzip} 0 8 begin)
  string(SUBSTRING ${gzip} 16 -1 rest)
  set(gzip "${begin}00000000${rest}")
  foreach(form plain gzip)
    string(REGEX REPLACE "(..)" "0x\\1," bytes ${${form}})
    string(APPEND arrays "constexpr unsigned char ${form}_${number}[] = {${bytes}};\n")
  endforeach()
  string(APPEND rows "    {\"${name}\", \"${hash}\", Text(plain_${number}), Text(gzip_${number})},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT} "#include \"server/ui/ui_files.h\"

namespace baton {
namespace {

${arrays}
template <size_t kSize>
std::string_view Text(const unsigned char (&bytes)[kSize]) {
  return {reinterpret_cast<const char*>(bytes), kSize};
}

}  // namespace

std::span<const UiFile> UiFiles() {
  static const UiFile kFiles[] = {
${rows}  };
  return kFiles;
}

}  // namespace baton
")
