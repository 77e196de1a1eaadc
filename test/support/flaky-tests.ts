import type { Reporter, TestModule } from 'vitest/node'

/** Reports the tests that passed only after a retry, and why the first try failed. */
export class FlakyTests implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()])
    const names = tests
      .filter((test) => test.diagnostic()?.flaky)
      .map((test) => {
        const [error] = test.result().errors ?? []
        return `  ${test.module.relativeModuleId} > ${test.fullName}\n    ${error?.message.split('\n')[0] ?? 'no error'}`
      })
    if (names.length > 0) console.warn(`\nPassed only after a retry:\n${names.join('\n')}`)
  }
}
