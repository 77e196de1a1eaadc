import type { Reporter, TestModule } from 'vitest/node'

/** Names the tests that passed only when they were tried again, and why the first try failed. */
export class SecondTries implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()])
    const names = tests
      .filter((test) => test.diagnostic()?.flaky)
      .map((test) => {
        const [error] = test.result().errors ?? []
        return `  ${test.module.relativeModuleId} > ${test.fullName}\n    ${error?.message.split('\n')[0] ?? 'no error'}`
      })
    if (names.length > 0) console.warn(`\nPassed only when they were tried again:\n${names.join('\n')}`)
  }
}
