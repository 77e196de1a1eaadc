import { describe, expect, test } from 'vitest'
import { engineContract } from './contract.ts'
import { type NeonUnderTest, startNeonEngine } from './neon-engine.ts'

describe('the driver neon', () => {
  let neon: NeonUnderTest
  engineContract(async () => {
    neon = await startNeonEngine()
    return neon
  })
  test('sends nothing, in all of these, that is not as Neon publishes it', () => {
    expect(neon.server.calls.length).toBeGreaterThan(0)
    expect(neon.server.violations).toEqual([])
  })
})
