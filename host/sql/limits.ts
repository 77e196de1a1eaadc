const MIB = 1024 * 1024

export const DEFAULT_LIMITS = {
  /** Pooled sessions of one instance that are in use. As many may be idle, and as many again serve a single request of a trusted caller. */
  sessionsMax: 20,
  controlSessionsMax: 60,
  /** Sessions of one instance that serve a single request of a caller without the host key. */
  clientSessionsMax: 10,
  /** Requests that may wait for each kind of session. */
  waitingMax: 200,
  /** Waiting requests of the control plane, which limits its own callers. */
  controlWaitingMax: 5_000,
  waitMs: 10_000,
  connectTimeoutMs: 10_000,
  /** Idle sessions are closed after this time, so that the instance can sleep. */
  idleMs: 15_000,
  controlIdleMs: 300_000,
  bodyBytesMax: 16 * MIB,
  /** Statements of one batch. */
  statementsMax: 1_000,
  /**
   * Values in a body, estimated by its commas and brackets: small values take many times as much memory as their text, and parsing
   * millions stops the host for seconds.
   */
  bodyValuesMax: 200_000,
  /** Memory for the large bodies of all requests together. */
  bodiesBytesMax: 128 * MIB,
  /** A client that has not sent its body after this time is disconnected, because a large body takes memory of the budget. */
  bodyTimeoutMs: 60_000,
  /** Size of one result as Postgres sends it. Its JSON may be twice as large. */
  resultBytesMax: 16 * MIB,
  /** Memory for all results together. */
  budgetBytesMax: 256 * MIB,
  /**
   * Large results of one instance wait for each other: 30 of 15 MB take about 45 s on two cores, and the last ones start after 35 s.
   * A result that starts later would end with the time limit of its statement (60 s), an error that misleads.
   */
  budgetWaitMs: 45_000,
  /** A client that has not read its reply after this time is disconnected, because the reply takes memory of the budget. */
  sendTimeoutMs: 60_000,
  /** WebSockets of callers without the host key. */
  webSocketsMax: 2_000,
}

export type SqlLimits = typeof DEFAULT_LIMITS
