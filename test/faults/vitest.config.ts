import config from '../vitest.config.ts'

/** What dies, hangs or is refused at each single place, and what needs the registry of npm: too much for each run of the tests. */
export default { ...config, test: { ...config.test, include: ['test/**/*.faults.ts'] } }
