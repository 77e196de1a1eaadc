import type { Report } from '../../dev/admin/command.ts'
import { readCommand } from '../../dev/admin/commands.ts'
import { control } from './api.ts'

/** What `npm run admin` says, without a process of its own for it. */
export const admin = async (...args: string[]) => (await adminReport(...args)).text

/** The same with its exit code. */
export const adminReport = (...args: string[]): Promise<Report> => readCommand(args)(control)
