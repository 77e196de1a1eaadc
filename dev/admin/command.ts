import type { ControlDb } from '../seed.ts'

/** The options of all commands, in the form of `parseArgs`. */
export const OPTIONS = {
  scopes: { type: 'string' },
  days: { type: 'string' },
  name: { type: 'string' },
  owner: { type: 'string' },
  plan: { type: 'string' },
  project: { type: 'string' },
  organization: { type: 'string' },
  since: { type: 'string' },
  until: { type: 'string' },
  status: { type: 'string' },
  'redirect-uris': { type: 'string' },
  repository: { type: 'string' },
  workdir: { type: 'string' },
  user: { type: 'string' },
  'database-host': { type: 'string' },
  'database-port': { type: 'string' },
  'database-domain': { type: 'string' },
  'branch-limit': { type: 'string' },
  'new-branch-per-pr': { type: 'boolean' },
  'changes-only': { type: 'boolean' },
  public: { type: 'boolean' },
  implicit: { type: 'boolean' },
  'dry-run': { type: 'boolean' },
  'source-lost': { type: 'boolean' },
  lost: { type: 'boolean' },
  yes: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

export type Options = {
  [Name in keyof typeof OPTIONS]?: ((typeof OPTIONS)[Name]['type'] extends 'boolean' ? boolean : string) | undefined
}

export interface Report {
  text: string
  /** Exit code of the process: 1 tells a monitor that the command found a problem. */
  exitCode: 0 | 1
}

export interface Command {
  /** One sentence, for `--help`. */
  summary: string
  args: readonly string[]
  /** The options as the usage shows them; all others are refused. */
  options?: string
  /** Runs the command and returns the text to print. */
  run(db: ControlDb, args: string[], options: Options): Promise<string | Report>
}

export const DAY_MS = 86_400_000
