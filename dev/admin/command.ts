import type { ControlDb } from '../seed.ts'

/** Every option that some command takes, as `parseArgs` reads them. */
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
  yes: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

export type Options = {
  [Name in keyof typeof OPTIONS]?: ((typeof OPTIONS)[Name]['type'] extends 'boolean' ? boolean : string) | undefined
}

export interface Report {
  text: string
  /** Of the process: 1 tells a monitor that something is wrong, though the command did its work. */
  exitCode: 0 | 1
}

export interface Command {
  /** One sentence, for `--help`. */
  summary: string
  args: readonly string[]
  /** As its usage shows them; it takes no others. */
  options?: string
  /** What to print. */
  run(db: ControlDb, args: string[], options: Options): Promise<string | Report>
}

export const DAY_MS = 86_400_000
