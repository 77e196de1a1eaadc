/** The logs of the projects' database servers; reading them does not use the database. */
export interface DatabaseLogs {
  /** The current end of each project's log, as a cursor; `unreachable` lists the hosts that do not answer. */
  ends(): Promise<{ ends: Map<string, string>; unreachable: string[] }>
  /** Messages after the cursor `since`, or the oldest that exist. */
  read(ref: string, since: string | undefined, limit: number): Promise<LogPage>
}

export interface LogPage {
  /** The cursor for the next page. */
  cursor: string
  lines: LogLine[]
  /** Number of bytes after `since` that were deleted before they were read. */
  skippedBytes: number
}

/** A log message. Fields without a value are absent. */
interface LogLine {
  /** ISO 8601, in UTC. */
  timestamp: string
  message: string
  /** For example `error_severity` and `user_name`. */
  fields: Record<string, string>
}
