// How a chat template takes content that is a list of text parts.
#pragma once

#include "text/chat_template.h"

namespace baton {

// Whether the template iterates over such a list: found by rendering one. Others get the parts
// joined by line ends.
bool TakesParts(const ChatTemplate& chat_template);

}  // namespace baton
