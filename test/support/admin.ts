import { readCommand } from '../../dev/admin/commands.ts'
import { control } from './api.ts'

/** What `npm run admin` says, without a process of its own for it. */
export const admin = async (...args: string[]) => (await readCommand(args)(control)).text
