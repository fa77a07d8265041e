#include "tuner/model/booster.h"

#include <xgboost/c_api.h>

#include <limits>

namespace whet::model {
namespace {

Status Checked(int rc, const char* what) {
  if (rc == 0) return OkStatus();
  std::string message = XGBGetLastError();
  if (message.size() > 400) message.resize(400);  // a stack trace follows the first lines
  return Internal("xgboost: {}: {}", what, message);
}

Status SetParam(BoosterHandle handle, const char* name, const std::string& value) {
  return Checked(XGBoosterSetParam(handle, name, value.c_str()), name);
}

Status SetParams(BoosterHandle handle, const BoosterParams& p) {
  const std::pair<const char*, std::string> params[] = {
      {"verbosity", "0"},
      {"nthread", "1"},
      {"objective", "reg:squarederror"},  // only names the output: identity, one value per row
      {"base_score", "0"},
      {"tree_method", "hist"},
      {"max_bin", std::to_string(p.max_bin)},
      {"max_depth", std::to_string(p.max_depth)},
      {"eta", fmt::format("{}", p.eta)},
      {"min_child_weight", fmt::format("{}", p.min_child_weight)},
      {"subsample", fmt::format("{}", p.subsample)},
      {"colsample_bytree", fmt::format("{}", p.colsample_bytree)},
      {"lambda", fmt::format("{}", p.lambda)},
      {"seed", std::to_string(p.seed & 0x7fffffff)},
  };
  for (const auto& [name, value] : params) WHET_RETURN_IF_ERROR(SetParam(handle, name, value));
  return OkStatus();
}

}  // namespace

StatusOr<Matrix> Matrix::Make(std::span<const float> values, int64_t rows, int64_t cols) {
  if (rows <= 0 || cols <= 0 || static_cast<int64_t>(values.size()) != rows * cols) {
    return InvalidArgument("feature matrix: {} values for {} rows of {}", values.size(), rows,
                           cols);
  }
  DMatrixHandle handle = nullptr;
  WHET_RETURN_IF_ERROR(
      Checked(XGDMatrixCreateFromMat_omp(values.data(), static_cast<bst_ulong>(rows),
                                         static_cast<bst_ulong>(cols),
                                         std::numeric_limits<float>::quiet_NaN(), &handle, 1),
              "create matrix"));
  return Matrix(handle, rows);
}

Matrix::~Matrix() {
  if (handle_ != nullptr) XGDMatrixFree(handle_);
}

StatusOr<Booster> Booster::Make(const BoosterParams& params, const Matrix& train) {
  BoosterHandle handle = nullptr;
  const DMatrixHandle cached[] = {train.handle_};
  WHET_RETURN_IF_ERROR(Checked(XGBoosterCreate(cached, 1, &handle), "create booster"));
  Booster booster(handle);
  WHET_RETURN_IF_ERROR(SetParams(handle, params));
  return booster;
}

StatusOr<Booster> Booster::Load(std::string_view bytes) {
  BoosterHandle handle = nullptr;
  WHET_RETURN_IF_ERROR(Checked(XGBoosterCreate(nullptr, 0, &handle), "create booster"));
  Booster booster(handle);
  WHET_RETURN_IF_ERROR(SetParam(handle, "verbosity", "0"));
  WHET_RETURN_IF_ERROR(
      Checked(XGBoosterLoadModelFromBuffer(handle, bytes.data(), bytes.size()), "load booster"));
  WHET_RETURN_IF_ERROR(SetParam(handle, "nthread", "1"));
  return booster;
}

Booster& Booster::operator=(Booster&& o) noexcept {
  std::swap(handle_, o.handle_);
  return *this;
}

Booster::~Booster() {
  if (handle_ != nullptr) XGBoosterFree(handle_);
}

Status Booster::BoostOneRound(const Matrix& train, std::span<float> grad, std::span<float> hess) {
  if (static_cast<int64_t>(grad.size()) != train.rows() || grad.size() != hess.size()) {
    return Internal("gradient of {} and {} values for {} rows", grad.size(), hess.size(),
                    train.rows());
  }
  return Checked(
      XGBoosterBoostOneIter(handle_, train.handle_, grad.data(), hess.data(), grad.size()),
      "boost");
}

StatusOr<std::vector<float>> Booster::Predict(const Matrix& rows) const {
  bst_ulong n = 0;
  const float* out = nullptr;
  constexpr int kMargin = 1;
  WHET_RETURN_IF_ERROR(
      Checked(XGBoosterPredict(handle_, rows.handle_, kMargin, 0, 0, &n, &out), "predict"));
  if (static_cast<int64_t>(n) != rows.rows())
    return Internal("xgboost: {} predictions for {} rows", n, rows.rows());
  return std::vector<float>(out, out + n);
}

StatusOr<std::string> Booster::Save() const {
  bst_ulong n = 0;
  const char* out = nullptr;
  WHET_RETURN_IF_ERROR(Checked(
      XGBoosterSaveModelToBuffer(handle_, R"({"format": "ubj"})", &n, &out), "save booster"));
  return std::string(out, n);
}

}  // namespace whet::model
