const MIB = 1024 * 1024

export const DEFAULT_LIMITS = {
  /** Sessions of one instance that are kept between requests, and as many again that serve one request of a trusted caller. */
  sessionsMax: 20,
  controlSessionsMax: 60,
  /** Sessions of one instance that serve one request of a caller without the host's key. */
  clientSessionsMax: 10,
  /** Requests that wait for each of these kinds of sessions. */
  waitingMax: 200,
  /** The control plane's own requests; it bounds its callers itself. */
  controlWaitingMax: 5_000,
  waitMs: 10_000,
  connectTimeoutMs: 10_000,
  /** Sessions that nobody uses are closed after this time, so that the instance can sleep. */
  idleMs: 15_000,
  controlIdleMs: 300_000,
  bodyBytesMax: 16 * MIB,
  /** One result, as Postgres sends it. Its JSON may be twice as large. */
  resultBytesMax: 16 * MIB,
  /** All results in memory. */
  budgetBytesMax: 256 * MIB,
  budgetWaitMs: 10_000,
  /** A client that has not read its reply after this time is cut off, because the reply takes room of the budget. */
  sendTimeoutMs: 60_000,
  /** WebSockets of callers without the host's key. */
  webSocketsMax: 2_000,
  webSocketMessageBytesMax: 16 * MIB,
}

export type SqlLimits = typeof DEFAULT_LIMITS
