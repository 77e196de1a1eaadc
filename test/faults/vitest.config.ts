import { globSync, readFileSync } from 'node:fs'
import config from '../vitest.config.ts'

process.env.EXTENDED = 'on'

const asksForMore = (file: string) => readFileSync(file, 'utf8').includes('/extended.ts')

/** What dies, hangs or is refused at each single place, what needs the registry of npm or a cluster for each project: too much for each run. */
export default {
  ...config,
  test: { ...config.test, include: ['test/**/*.faults.ts', ...globSync('test/**/*.test.ts').filter(asksForMore)] },
}
