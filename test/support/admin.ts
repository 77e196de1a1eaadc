import type { Report } from '../../dev/admin/command.ts'
import { readCommand } from '../../dev/admin/commands.ts'
import { control } from './api.ts'

/** Returns what `npm run admin` prints, without a process for each command. */
export const admin = async (...args: string[]) => (await adminReport(...args)).text

/** Returns the same with its exit code. */
export const adminReport = (...args: string[]): Promise<Report> => readCommand(args)(control)
