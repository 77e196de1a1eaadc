import { describe, expect, it } from 'vitest'
import { seal, unseal } from '../../src/platform/secrets/seal.ts'

const key = (id: string, byte: number) => `${id}:${Buffer.alloc(32, byte).toString('base64')}`
const KEY = key('k1', 1)

describe('a sealed secret', () => {
  it('opens where it belongs, and reveals nothing of its text', async () => {
    const sealed = await seal(KEY, 'secret', 'projects/a/password')
    expect(sealed).toMatch(/^k1\.[\w-]+$/)
    expect(await unseal(KEY, sealed, 'projects/a/password')).toBe('secret')
    expect(await seal(KEY, 'secret', 'projects/a/password')).not.toBe(sealed)
  })

  it('opens nowhere else: not in another row, under another key, or changed', async () => {
    const sealed = await seal(KEY, 'secret', 'projects/a/password')
    await expect(unseal(KEY, sealed, 'projects/b/password')).rejects.toThrow()
    await expect(unseal(key('k1', 2), sealed, 'projects/a/password')).rejects.toThrow()
    await expect(unseal(key('k2', 1), sealed, 'projects/a/password')).rejects.toThrow('no longer holds the key k1')
    await expect(unseal(KEY, `${sealed.slice(0, -2)}xx`, 'projects/a/password')).rejects.toThrow()
  })

  it('can be opened after a new key was put first', async () => {
    const sealed = await seal(KEY, 'secret', 'place')
    const both = `${key('k2', 2)},${KEY}`
    expect(await unseal(both, sealed, 'place')).toBe('secret')
    expect(await seal(both, 'secret', 'place')).toMatch(/^k2\./)
  })

  it.each(['', 'k1', 'k1:short', `${KEY},`])('refuses the setting %j', async (setting) => {
    await expect(seal(setting, 'secret', 'place')).rejects.toThrow('Invalid ENCRYPTION_KEY: must be')
  })

  it('refuses two keys with one id, of which only one would open', async () => {
    const setting = `${KEY},${key('k1', 2)}`
    await expect(unseal(setting, await seal(KEY, 'secret', 'place'), 'place')).rejects.toThrow(
      'two keys have the id k1',
    )
  })
})
