/** TEMPORARY until the branch engine. */
export class Decoder { config = {vocab_size: 0}; context = 0;
 /** @param {Uint8Array} _bytes @param {object} _options @returns {Promise<Decoder>} */ static async open(_bytes, _options) { throw new Error("x"); }
 /** @param {number[]} _a @param {number[]} _b @param {number[]} _c @param {number[]} _d */ run(_a,_b,_c,_d) {} 
 /** @param {number} _i */ logits(_i) { return new Float32Array(); } 
 /** @param {number} _i @param {number} _k @returns {[number, number][]} */ top(_i,_k) {return [];} close() {} }
