// Rows as structs <-> rows as cells, in the column order of schema.h. Internal to db/store. A
// trial's target is stored by fingerprint (its text repeats in every row of a device); the caller
// knows the text.
#pragma once
#include <string>
#include <vector>

#include "db/record/record.h"
#include "db/store/sqlite.h"

namespace whet::db {

std::vector<Cell> ToCells(const WorkloadRow& row);
std::vector<Cell> ToCells(const DeviceRow& row);
std::vector<Cell> ToCells(const JobRow& row);
std::vector<Cell> ToCells(const PlanRow& row);
std::vector<Cell> ToCells(const MachineRow& row);
std::vector<Cell> ToCells(const TrialRow& row);
std::vector<Cell> TargetCells(const std::string& text);

// DataLoss if the cells contradict themselves (they passed their CRC, so a bug or a forger made
// them).
StatusOr<WorkloadRow> WorkloadFrom(std::vector<Cell> cells);
StatusOr<DeviceRow> DeviceFrom(std::vector<Cell> cells);
StatusOr<JobRow> JobFrom(std::vector<Cell> cells);
StatusOr<PlanRow> PlanFrom(std::vector<Cell> cells);
StatusOr<MachineRow> MachineFrom(std::vector<Cell> cells);
StatusOr<TrialRow> TrialFrom(std::vector<Cell> cells, const std::string& target);

std::string PackSamples(const std::vector<double>& samples);  // f64, little-endian

}  // namespace whet::db
