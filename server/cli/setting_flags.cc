#include "server/cli/setting_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

struct ShortName {
  std::string_view flag, key;
};
constexpr ShortName kShortNames[] = {
    {"--host", "server.host"},
    {"--port", "server.port"},
    {"--uds", "server.uds"},
    {"--tls-cert", "server.tls_cert"},
    {"--tls-key", "server.tls_key"},
    {"--tls-client-ca", "server.tls_client_ca"},
    {"--grpc-port", "server.grpc_port"},
    {"--api-key-file", "server.api_key_file"},
    {"--allow-unauthenticated", "server.allow_unauthenticated"},
    {"--prefill", "prefill.workers"},
    {"--decode", "decode.workers"},
    {"--colocated", "cluster.colocated"},
    {"--served-model-name", "model.name"},
    {"--alias", "model.name"},
    {"--max-model-len", "model.max_context"},
    {"--ctx-size", "model.max_context"},
    {"--dtype", "model.dtype"},
    {"--device", "model.device"},
    {"--gpu-memory-utilization", "model.gpu_memory_utilization"},
    {"--isa", "model.isa"},
    {"--page-tokens", "model.page_tokens"},
    {"--block-size", "model.page_tokens"},
    {"--max-num-seqs", "decode.max_batch"},
    {"--router", "cluster.router"},
    {"--log-level", "log.level"},
    {"--shutdown-timeout", "server.shutdown_timeout"},
    {"--hf-cache", "model.hf_cache"},
};

struct RenamedFlag {
  std::string_view old_name, new_name;
};
constexpr RenamedFlag kRenamed[] = {
    {"--attention", "--lab.attention"},  // of benchmarks, to --model
    {"--cache-dir", "--model.weight_cache"},
    {"--int4-group", "--model.int4_group"},
    {"--kv-dtype", "--kv.dtype"},
    {"--model", "--model.path"},
    {"--hf_cache", "--hf-cache"},
};

}  // namespace

void SettingFlags::AddTo(CLI::App* app) {
  for (const Settings::Setting& setting : settings_->all()) AddSetting(app, setting);
}

void SettingFlags::AddTo(CLI::App* app, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) AddSetting(app, *settings_->Find(key));
}

void SettingFlags::AddSetting(CLI::App* app, const Settings::Setting& setting) {
  Add(app, absl::StrCat("--", setting.key), setting);
  for (const ShortName& name : kShortNames)
    if (name.key == setting.key) Add(app, std::string(name.flag), setting);
}

void SettingFlags::Add(CLI::App* app, const std::string& name, const Settings::Setting& setting) {
  flags_.push_back({name, setting.key, "", nullptr});
  Flag& flag = flags_.back();
  flag.option = setting.is_bool ? app->add_flag(name, flag.value, setting.help)
                                : app->add_option(name, flag.value, setting.help);
  // Repeated, the flag names the model once more; other flags replace what came before.
  if (setting.key == "model.name") {
    flag.option->join(',');
  } else {
    flag.option->take_last();
  }
}

absl::Status SettingFlags::Apply() const {
  for (const Flag& flag : flags_) {
    if (flag.option->count() == 0) continue;
    RETURN_IF_ERROR(settings_->SetFlag(flag.key, flag.value, flag.name));
  }
  return absl::OkStatus();
}

std::vector<std::string> SettingFlags::names() const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  return names;
}

std::string NewFlagName(std::string_view flag, const Settings& settings) {
  for (const RenamedFlag& renamed : kRenamed)
    if (renamed.old_name == flag) return std::string(renamed.new_name);
  if (flag.substr(0, 2) != "--") return "";
  const std::string key = settings.NewName(flag.substr(2));
  return key.empty() ? "" : absl::StrCat("--", key);
}

}  // namespace baton
