import { describe } from 'vitest'
import { engineContract } from './contract.ts'
import { startEngine } from './copy-projects.ts'
import { connect } from './storage-database.ts'

describe('the driver postgres', () => {
  engineContract(async () => ({
    ...(await startEngine()),
    connect: (ref, password, user = `p_${ref}`) => connect(`p_${ref}`, { user, password }),
  }))
})
