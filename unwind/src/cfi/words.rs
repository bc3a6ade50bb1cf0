//! Writes a row as text, in the format of `readelf --debug-dump=frames-interp`.

use core::fmt;

use gimli::{Encoding, EndianSlice, Format, LittleEndian, Operation};

use super::row::Row;
use super::rules::{CfaRule, ExpressionBytes, RegisterRule};

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CFA=")?;
        match self.cfa {
            CfaRule::None => f.write_str("none")?,
            CfaRule::RegisterOffset { register, offset } => {
                self.write_register(f, register)?;
                write!(f, "{offset:+}")?;
            }
            CfaRule::AtRegister { register, offset } => self.write_at_register(f, register, offset)?,
            CfaRule::Expression(expression) => self.write_expression(f, expression)?,
        }
        let (ra, others): (&[_], &[_]) = match self.registers.split_last() {
            Some((last, others)) if last.0 == self.return_address_register => (core::slice::from_ref(last), others),
            _ => (&[], &self.registers),
        };
        for &(register, rule) in others.iter().chain(ra) {
            f.write_str(", ")?;
            if register == self.return_address_register {
                f.write_str("ra")?;
            } else {
                self.write_register(f, register)?;
            }
            f.write_str("=")?;
            self.write_rule(f, rule)?;
        }
        if self.is_signal_frame { f.write_str(", signal frame") } else { Ok(()) }
    }
}

impl Row {
    fn write_register(&self, f: &mut fmt::Formatter<'_>, register: u16) -> fmt::Result {
        match self.arch.register_name(register) {
            Some(name) => f.write_str(name),
            None => write!(f, "r{register}"),
        }
    }

    fn write_at_register(&self, f: &mut fmt::Formatter<'_>, register: u16, offset: i64) -> fmt::Result {
        f.write_str("(")?;
        self.write_register(f, register)?;
        write!(f, "{offset:+})")
    }

    fn write_rule(&self, f: &mut fmt::Formatter<'_>, rule: RegisterRule) -> fmt::Result {
        match rule {
            RegisterRule::Unspecified | RegisterRule::Undefined => f.write_str("u"),
            RegisterRule::SameValue => f.write_str("s"),
            RegisterRule::Offset(offset) => write!(f, "c{offset:+}"),
            RegisterRule::ValOffset(offset) => write!(f, "v{offset:+}"),
            RegisterRule::Register(register) => self.write_register(f, register),
            RegisterRule::AtRegister { register, offset } => self.write_at_register(f, register, offset),
            RegisterRule::Expression(expression) => self.write_expression(f, expression),
            RegisterRule::ValExpression(expression) => {
                f.write_str("v")?;
                self.write_expression(f, expression)
            }
        }
    }

    fn write_expression(&self, f: &mut fmt::Formatter<'_>, expression: ExpressionBytes) -> fmt::Result {
        let encoding = Encoding { address_size: self.arch.spec().word_bytes, format: Format::Dwarf32, version: 4 };
        let mut bytes = EndianSlice::new(self.expression(expression), LittleEndian);
        f.write_str("exp(")?;
        let mut separator = "";
        while let Some(&opcode) = bytes.slice().first() {
            f.write_str(separator)?;
            separator = "; ";
            match Operation::parse(&mut bytes, encoding) {
                Ok(operation) => self.write_operation(f, opcode, operation)?,
                Err(error) => {
                    write!(f, "{error}")?;
                    break;
                }
            }
        }
        f.write_str(")")
    }

    fn write_operation(
        &self,
        f: &mut fmt::Formatter<'_>,
        opcode: u8,
        operation: Operation<EndianSlice<'_, LittleEndian>>,
    ) -> fmt::Result {
        match gimli::DwOp(opcode).static_string() {
            Some(name) => f.write_str(name.strip_prefix("DW_OP_").unwrap_or(name))?,
            None => write!(f, "op {opcode:#x}")?,
        }
        match operation {
            Operation::RegisterOffset { register, offset, .. } => {
                f.write_str(" (")?;
                self.write_register(f, register.0)?;
                write!(f, ") {offset:+}")
            }
            // The names of the literals contain their value.
            Operation::UnsignedConstant { .. } if (0x30..0x50).contains(&opcode) => Ok(()),
            Operation::UnsignedConstant { value } | Operation::PlusConstant { value } => write!(f, " {value}"),
            Operation::SignedConstant { value } => write!(f, " {value}"),
            Operation::Address { address } => write!(f, " {address:#x}"),
            Operation::Bra { target } | Operation::Skip { target } => write!(f, " {target:+}"),
            Operation::Pick { index } => write!(f, " {index}"),
            Operation::Deref { size, .. } if opcode == gimli::DW_OP_deref_size.0 => write!(f, " {size}"),
            _ => Ok(()),
        }
    }
}
