import type { Schemas } from "./api";

export type Stats = Schemas["StatsView"];
export type Counters = Schemas["StatsCounters"];
