#include "proto/field_visitors.h"

#include <span>

#include "absl/strings/str_format.h"
#include "proto/control_codec.h"

namespace baton {

// The functions that protobuf offers instead make a virtual call per token.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void FieldWriter::Tokens(int number, const std::vector<int32_t>& tokens, const Bounds&) {
  reflection_->MutableRepeatedField<int32_t>(out_, At(number))->Add(tokens.begin(), tokens.end());
}

void FieldReader::Tokens(int number, std::vector<int32_t>& tokens, const Bounds& count) {
  const auto& field = reflection_->GetRepeatedField<int32_t>(in_, At(number));
  const std::span read(field.data(), static_cast<size_t>(field.size()));
  if (!HasLength(number, read.size(), "entries", count)) return;
  const bool are_ids = std::all_of(read.begin(), read.end(), [](int32_t id) { return id >= 0; });
  if (Require(number, are_ids, "has a negative token id")) tokens.assign(read.begin(), read.end());
}
#pragma GCC diagnostic pop

void FieldReader::Name(int number, std::string& name) {
  Text(number, name, ControlLimits::kNameBytes);
  Require(number,
          std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; }),
          "has bytes that are not printable ASCII");
}

void FieldReader::Text(int number, std::string& text, size_t max_bytes) {
  std::string read = reflection_->GetString(in_, At(number));
  if (HasLength(number, read.size(), "bytes", Bounds(0, static_cast<double>(max_bytes))))
    text = std::move(read);
}

bool FieldReader::Require(int number, bool ok, std::string_view what) {
  if (!ok)
    Refuse(absl::InvalidArgumentError(absl::StrCat(At(number)->name(), " ", std::string(what))));
  return ok;
}

bool FieldReader::InBounds(int number, double value, const Bounds& bounds) {
  if (bounds.Contain(value)) return true;
  return Require(
      number, false,
      absl::StrFormat("is %.16g, must be in [%.16g, %.16g]", value, bounds.min, bounds.max));
}

bool FieldReader::HasLength(int number, size_t length, std::string_view unit,
                            const Bounds& bounds) {
  if (bounds.Contain(static_cast<double>(length))) return true;
  return Require(
      number, false,
      absl::StrFormat("has %d %s, must have %.16g to %.16g", length, unit, bounds.min, bounds.max));
}

void FieldReader::Refuse(const absl::Status& error) {
  if (status_->ok() && !error.ok())
    *status_ = absl::InvalidArgumentError(absl::StrCat(Path(), error.message()));
}

std::string FieldReader::Path() const {
  return parent_ == nullptr ? "" : absl::StrCat(parent_->Path(), own_->name(), ".");
}

}  // namespace baton
