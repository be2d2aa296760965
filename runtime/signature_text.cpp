// See signature_text.h. Example of a line: `{2, 1} f32[64,256] f32[64]:[256] 0.5 -> f32[64] _ unaligned hot`. It has the structure in
// braces, then arguments, then destinations. Types are as in `onepass dump --shapes`, with strides after a colon if they are not
// row-major.
#include "runtime/signature_text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/log.h"
#include "runtime/os.h"
#include "runtime/os_output.h"

namespace onepass::runtime {
namespace {

using compiler::Literal;
using Item = CallSignature::Item;

// Returns row-major strides for unchecked lengths: they may wrap, and fail later.
std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  std::uint64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= static_cast<std::uint64_t>(shape[i]))
    strides[i] = static_cast<std::int64_t>(stride);
  return strides;
}
bool is_dense(const ArgumentType& type) { return type.strides.empty() || type.strides == dense_strides(type.shape); }

std::string list_text(std::span<const std::int64_t> list) {
  std::string text;
  for (const std::int64_t n : list) text += fmt::format("{}{}", text.empty() ? "" : ",", n);
  return text;
}

std::string number_text(const Literal& number) {
  switch (number.kind) {
    case Literal::Kind::Bool:
    case Literal::Kind::Int:
    case Literal::Kind::UInt: return compiler::text_of(number);
    case Literal::Kind::Float: break;
  }
  std::string text = fmt::format("{}", number.real);
  if (text.find_first_of(".enai") == text.npos) text += ".0";  // otherwise it would be read as an integer
  return text;
}

std::string item_text(const Item& item) {
  if (item.is_discarded) return "_";
  if (item.is_number) return number_text(item.number);
  std::string text = fmt::format("{}[{}]", name_of(item.type.dtype), list_text(item.type.shape));
  if (!is_dense(item.type)) text += fmt::format(":[{}]", list_text(item.type.strides));
  if (item.type.device.is_cuda()) text += fmt::format("@cuda:{}", item.type.device.index());
  return text;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : whole_(text), rest_(text) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw ValueError(
        fmt::format("signature `{}`: {} at `{}`. Write it as `f32[64,256] f32[256] 0.5`, or with the types of the results as `f32[64,256] "
                    "f32[256] 0.5 -> f32[64,256]`",
                    whole_.substr(0, 200), what, rest_.substr(0, 40)));
  }
  void skip() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\r')) rest_.remove_prefix(1);
  }
  bool at_end() {
    skip();
    return rest_.empty();
  }
  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  bool take_word(std::string_view what) {
    skip();
    const bool ends = rest_.size() == what.size() || (rest_.size() > what.size() && std::strchr(" \t\r", rest_[what.size()]));
    return ends && take(what);
  }
  std::vector<std::int64_t> list(char close, bool negative) {
    std::vector<std::int64_t> out;
    for (skip(); !take(std::string_view(&close, 1)); skip()) {
      if (!out.empty() && !take(",")) fail("expected a comma");
      skip();
      std::int64_t n = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
      if (error != std::errc() || (n < 0 && !negative)) fail(negative ? "expected an integer" : "expected an integer of at least 0");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      out.push_back(n);
    }
    return out;
  }
  Item item() {
    Item item;
    const std::size_t bracket = rest_.find('['), blank = rest_.find_first_of(" \t\r");
    if (bracket == rest_.npos || blank < bracket) {
      item.is_number = true;
      item.number = number(rest_.substr(0, blank));
      rest_.remove_prefix(std::min(blank, rest_.size()));
      return item;
    }
    if (!dtype_of(rest_.substr(0, bracket), item.type.dtype)) fail("expected a type such as f32[64,256]");
    rest_.remove_prefix(bracket + 1);
    item.type.shape = list(']', false);
    if (take(":[")) {
      item.type.strides = list(']', true);
      if (item.type.strides.size() != item.type.shape.size()) fail("the number of strides differs from the number of extents");
    }
    if (take("@cuda:")) {
      int index = -1;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), index);
      if (error != std::errc() || index < 0 || index > 254) fail("expected a device number");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      item.type.device = Device::cuda(index);
    }
    if (!rest_.empty() && !std::strchr(" \t\r", rest_.front())) fail("expected a space");
    return item;
  }

 private:
  Literal number(std::string_view word) const {
    if (word == "true" || word == "false") return {.kind = Literal::Kind::Bool, .integer = word == "true"};
    Literal out;
    const char *const begin = word.data(), *const end = begin + word.size();
    if (const auto [stop, error] = std::from_chars(begin, end, out.integer); error == std::errc() && stop == end) return out;
    std::uint64_t large = 0;
    if (const auto [stop, error] = std::from_chars(begin, end, large); error == std::errc() && stop == end)
      return {.kind = Literal::Kind::UInt, .integer = static_cast<std::int64_t>(large)};
    out = {.kind = Literal::Kind::Float};
    if (const auto [stop, error] = std::from_chars(begin, end, out.real); error != std::errc() || stop != end)
      fail("expected a type such as f32[64,256] or a number");
    return out;
  }

  std::string_view whole_, rest_;
};

constexpr std::size_t kMostItems = 1 << 16;  // limit of the first integer in a plan's key

}  // namespace

std::string CallSignature::text() const {
  std::string out;
  const auto add = [&](const std::string& word) { out += out.empty() ? word : " " + word; };
  if (!structure.empty()) add("{" + list_text(structure) + "}");
  for (const Item& item : arguments) add(item_text(item));
  if (into) {
    add("->");
    for (const Item& item : targets) add(item_text(item));
    if (!aligned) add("unaligned");
  }
  if (hot) add("hot");
  return out;
}

CallSignature CallSignature::parse(std::string_view text) {
  Reader in(text);
  CallSignature out;
  in.skip();
  if (in.take("{")) out.structure = in.list('}', true);
  while (!in.at_end()) {
    if (in.take_word("hot")) {
      out.hot = true;
      if (!in.at_end()) in.fail("unexpected text after `hot`");
      break;
    }
    if (!out.into && in.take_word("->")) {
      out.into = true;
      continue;
    }
    if (out.into && in.take_word("unaligned")) {
      out.aligned = false;
      continue;
    }
    if (!out.aligned) in.fail("expected only `hot` after `unaligned`");
    std::vector<Item>& items = out.into ? out.targets : out.arguments;
    if (items.size() + 1 >= kMostItems)
      in.fail("there are more than 65535 arguments or destinations; a signature can have at most 65535 of each");
    if (out.into && in.take_word("_")) {
      items.emplace_back().is_discarded = true;
      continue;
    }
    items.push_back(in.item());
    if (out.into && items.back().is_number) in.fail("expected the type of a result, not a value");
  }
  return out;
}

// Decodes the integers of signature.h, in their order.
CallSignature CallSignature::of(const LaunchPlan& plan) {
  CallSignature out;
  const std::int64_t* word = plan.key.data();
  const std::int64_t head = *word++;
  out.into = head & 1;
  const std::size_t arguments = static_cast<std::size_t>(head >> 16) & 0xff'ffff, targets = static_cast<std::size_t>(head >> 40);
  const auto item = [&] {
    Item item;
    const std::int64_t kind = *word++;
    if (kind == 0) {
      item.is_discarded = true;
    } else if ((kind & 0xff) == 2) {
      item.is_number = true;
      item.number.kind = static_cast<Literal::Kind>(kind >> 8);
      if (item.number.kind == Literal::Kind::Float) item.number.real = std::bit_cast<double>(*word++);
      else item.number.integer = *word++;
    } else {
      item.type.dtype = static_cast<DType>(kind >> 8 & 0xff);
      if (const auto device = static_cast<int>(kind >> kDeviceShift & 0xff)) item.type.device = Device::cuda(device - 1);
      const auto rank = static_cast<std::size_t>(kind >> 16 & 0xffff);
      item.type.shape.assign(word, word + rank);
      item.type.strides.assign(word + rank, word + 2 * rank);
      word += 2 * rank;
    }
    return item;
  };
  for (std::size_t i = 0; i < arguments; ++i) out.arguments.push_back(item());
  for (std::size_t i = 0; i < targets; ++i) out.targets.push_back(item());
  out.aligned = *word != 0;
  const auto is_hot = [](Specialised::State state) { return state == Specialised::State::Trial || state == Specialised::State::Used; };
  out.hot = plan.on_device && is_hot(plan.on_device->specialised());
  for (const Launch& launch : plan.launches) out.hot |= is_hot(launch.specialised->state());
  return out;
}

SignatureCall::SignatureCall(const CallSignature& signature) : into_(signature.into) {
  arrays_.reserve(signature.arguments.size() + signature.targets.size());
  // The addresses are never read or written. They are far apart, so that no destination seems to overlap an argument.
  std::uintptr_t address = std::uintptr_t{1} << 20;
  const auto make = [&](const ArgumentType& type, bool aligned) {
    const std::vector<std::int64_t> dense = type.strides.empty() ? dense_strides(type.shape) : type.strides;
    arrays_.push_back(Array::wrap_pointer(reinterpret_cast<void*>(address + (aligned ? 0 : size_of(type.dtype))), type.dtype,  // NOLINT
                                          Extents(std::span<const std::int64_t>(type.shape)), Extents(std::span<const std::int64_t>(dense)),
                                          false, type.device));
    address += 4096;
    return &arrays_.back();
  };
  for (const Item& item : signature.arguments) {
    Argument& argument = arguments_.emplace_back();
    if (item.is_number) argument.number = item.number;
    else argument.array = make(item.type, true);
  }
  for (const Item& item : signature.targets) targets_.push_back(item.is_discarded ? nullptr : make(item.type, signature.aligned));
}

std::vector<CallSignature> read_signatures(const std::string& path) {
  const os::FileBytes file = os::FileBytes::open("warm_up", path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::vector<CallSignature> out;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == line.npos || line[first] == '#') continue;
    try {
      out.push_back(CallSignature::parse(line));
    } catch (const ValueError& error) { throw ValueError(fmt::format("{}:{}: {}", path, number, error.what())); }
  }
  return out;
}

int warm_up_file(const std::string& path, const std::function<void(const CallSignature&)>& warm_up) {
  int ready = 0;
  for (const CallSignature& signature : read_signatures(path)) {
    try {
      warm_up(signature);
      ++ready;
    } catch (const MemoryError&) { throw; } catch (const Error& error) {  // the program may have changed since the file was written
      log(LogLevel::warning, "warm_up: {}: skipped `{}`: {}", path, signature.text(), error.what());
    }
  }
  return ready;
}

void write_signatures(const std::string& path, const std::vector<std::string>& texts) {
  std::string all = "# signatures of calls, for warm_up\n";
  for (const std::string& text : texts) all += text + '\n';
  os::AtomicFile file("write_signatures", path);
  file.write(all.data(), all.size());
  file.commit();
}

}  // namespace onepass::runtime
