// The types of GET /api/v1/stats.

/** Counters are absent where the token's scopes do not allow them. */
export type Counters = {
  tasks_created?: number;
  tasks_completed?: number;
  tasks_failed?: number;
  tasks_cancelled?: number;
  tool_calls?: number;
  tool_failures?: number;
  tokens?: number;
  tasks_p50_ms?: number;
  tasks_p95_ms?: number;
  calls_p50_ms?: number;
  calls_p95_ms?: number;
};

export type Stats = {
  window: string;
  from: string;
  to: string;
  step_seconds: number;
  now: Record<string, number | undefined>;
  totals: Counters;
  series: (Counters & { at: string })[];
};
