import './import-drizzle.ts'
import { describeFailure } from './lifetime.ts'

const { backup } = await import('./backup/backup-command.ts')

backup({ args: process.argv.slice(2), env: process.env, print: console.log }).catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
