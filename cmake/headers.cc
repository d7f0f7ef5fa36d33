// Holds nothing: CMake wants a source beside precompiled headers.
