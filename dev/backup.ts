import { backup } from './backup/backup-command.ts'
import { describeFailure } from './lifetime.ts'

backup({ args: process.argv.slice(2), env: process.env, print: console.log }).catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
