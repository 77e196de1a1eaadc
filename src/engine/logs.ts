/** The logs of the projects' database servers, which are read without a database noticing it. */
export interface DatabaseLogs {
  /** The end of each project's log; `unreachable` names the hosts that do not answer. */
  ends(): Promise<{ ends: Map<string, string>; unreachable: string[] }>
  /** Messages after a cursor, or the oldest there are. */
  read(ref: string, since: string | undefined, limit: number): Promise<LogPage>
}

export interface LogPage {
  /** The start of the next page. */
  cursor: string
  lines: LogLine[]
  /** Bytes between the cursor and the first line that are gone. */
  skippedBytes: number
}

/** Fields that a message does not have are absent. */
interface LogLine {
  /** ISO 8601, in UTC. */
  timestamp: string
  message: string
  /** Such as `error_severity` and `user_name`. */
  fields: Record<string, string>
}
